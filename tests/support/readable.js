// What cannot be read on a page: texts too near to their background by WCAG 2.1 (4.5 : 1; large ones 3 : 1), pictures without words or bytes,
// headings that leave out a level, width.
const lum = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
const rgba = s => { const v = s.match(/[\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v };
const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
const behind = e => { const own = rgba(getComputedStyle(e).backgroundColor); return own[3] === 1 || !e.parentElement ? (own[3] ? own.slice(0, 3) : [255, 255, 255]) : over(own, behind(e.parentElement)) };
const faint = new Set();
for (const e of document.querySelectorAll('.md-content *, .md-header *, .md-tabs *, .md-sidebar *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()), style = getComputedStyle(e);
  if (!own || !e.getClientRects().length || style.visibility === 'hidden' || e.closest('.headerlink, .md-clipboard, [hidden], .md-search')) continue;
  let alpha = 1; for (let n = e; n; n = n.parentElement) alpha *= getComputedStyle(n).opacity;
  if (alpha < .05) continue;
  const under = behind(e), colour = rgba(style.color); colour[3] *= alpha;
  const [a, b] = [lum(over(colour, under)), lum(under)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.7 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) faint.add(`${ratio.toFixed(2)} ${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 30)}`);
}
const bare = [...document.images].filter(i => !i.alt.trim() || (i.complete && !i.naturalWidth)).map(i => i.src.split('/').pop());
const levels = [...document.querySelectorAll('article :is(h1, h2, h3, h4, h5, h6)')].map(h => [+h.tagName[1], h.textContent.trim().slice(0, 30)]);
const skipped = levels.filter(([level], i) => i ? level > levels[i - 1][0] + 1 || level === 1 : level !== 1).map(([level, text]) => `h${level} ${text}`);
const wide = document.documentElement.scrollWidth - innerWidth;
document.body.setAttribute('data-found', JSON.stringify({faint: [...faint], bare, skipped, wide}));
