"""The pair's tokenizer: digits, operators and the words of its problems are a token each.

Any other text falls back to bytes.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tts.tasks.arithmetic.pocket import AGAIN, ANSWER, NO, RESTART, YES
from tts.tasks.arithmetic.worded import NAMES, words

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# operators with their spaces, marks, words (with the space before them), and else one character
_SPLIT = r" [-+*=] |A: |Restart\?| ?[A-Za-z]+|[\s\S]"


def build() -> PreTrainedTokenizerFast:
    """Return the tokenizer.

    Every word is whole (`ignore_merges`, no merges at all), and every other character is its bytes.
    """
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = [*pre_tokenizers.ByteLevel.alphabet()]
    vocabulary = {token: i for i, token in enumerate([PAD, BOS, EOS, *sorted(spelled)])}
    first_words = [*NAMES, "Reach", AGAIN]
    others = [word for word in words() if word not in (*NAMES, "with")]
    whole = [
        " + ",
        " - ",
        " * ",
        " = ",
        ANSWER,
        RESTART,
        YES,
        NO,
        *first_words,
        *(f" {word}" for word in (*others, "with")),
    ]
    for token in whole:
        vocabulary.setdefault("".join(_spell(token)), len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLIT), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (PAD, BOS, EOS)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def _spell(token: str) -> str:
    """Return a text in the alphabet in which byte-level vocabularies write their bytes."""
    return "".join(
        piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(token)
    )
