  // Shared by the pages that draw searches: inserted into the one script of each.
  const $ = (id) => document.getElementById(id);

  // ---- texts: everything from the trace goes through `visible` and then only into text nodes and attributes ----

  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/gu;
  const visible = (text) => text.replace(/\r\n/g, "\n").replace(UNSEEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  const snippet = (text, length = 120) => {
    const line = text.trim().replace(/\s+/g, " ");
    return visible(line.length > length ? line.slice(0, length).replace(/[\ud800-\udbff]$/, "") + "…" : line);
  };
  const whole = (value) => value === null ? "unknown" : value.toLocaleString("en-US");
  const dollars = (value) => value === null || value === undefined ? "unknown" : "$" + value.toLocaleString("en-US",
    {minimumFractionDigits: 2, maximumFractionDigits: Math.min(20, Math.max(4, 2 - Math.floor(Math.log10(Math.abs(value) || 1))))});
  const number = (value, digits = 3) => {
    if (value === null || value === undefined) return "unknown";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return value.toExponential(digits - 1).replace("e+", "e");
    return String(Number(value.toPrecision(digits)));
  };
  const flops = (value) => value === null ? "unknown" : value === 0 ? "0" : value.toExponential(2).replace("e+", "e");
  const plural = (count, one, many = one + "s") => `${whole(count)} ${count === 1 ? one : many}`;

  function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  }
  const pair = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));

  // ---- colours of scores: light to dark on light pages, dark to light on dark ones ----

  const RAMP = [[255, 247, 204], [161, 218, 180], [65, 182, 196], [34, 94, 168], [22, 38, 104]];
  const DARK_RAMP = [[44, 58, 120], [36, 98, 170], [65, 172, 188], [161, 218, 180], [255, 247, 204]];
  const blend = (ramp, share) => {
    const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
    const low = Math.min(Math.floor(at), ramp.length - 2);
    return ramp[low].map((value, i) => Math.round(value + (ramp[low + 1][i] - value) * (at - low)));
  };
  const inkOn = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
  };
  const css = (rgb) => `rgb(${rgb.join(",")})`;
  const paint = (element, share) => {
    const [light, dark] = [blend(RAMP, share), blend(DARK_RAMP, share)];
    element.style.setProperty("--light", css(light));
    element.style.setProperty("--light-ink", inkOn(light));
    element.style.setProperty("--dark", css(dark));
    element.style.setProperty("--dark-ink", inkOn(dark));
  };
  const scoreOf = (node, role) => {
    const values = node.scores[role];
    return values && values.length ? values[values.length - 1] : undefined;
  };

  // ---- words and signs of nodes ----

  const GLYPHS = {active: "○", finished: "●", truncated: "◐", failed: "✕"};
  const flagsOf = (node) => [node.status === "active" ? null : node.status, node.pruned ? "pruned" : null, node.scratch ? "scratch" : null].filter(Boolean);
  const values = (scores) => scores.map((value) => value === null ? "?" : number(value)).join(" · ");
