"""The word-level tokenizer of our own classifiers, built on `tokenizers` and saved with the model.

    style "default"      lower-case, `<br />` stripped, punctuation split off, negation contractions undone
    style "whitespace"   lower-case and `\\S+`: the starter code of TP 9, for replication

Contractions: GloVe as distributed here has no `n't`, so `n't` becomes the word `not`: didn't → did not. The stems that
English bends are straightened: can't → can not, won't → will not, shan't → shall not (ain't → ai not; `cannot` is a
word of its own and stays). Other clitics are one token each: it's → it 's. Words given one by one, with
`is_split_into_words`, are treated the same way: a treebank's `n't` becomes `not`, its `ca` or `wo` stays, and a given
word may have no token at all.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordLevelTrainer
from transformers import PreTrainedTokenizerFast

from lorgnette.errors import UserError, near

PAD, UNKNOWN, CLS = "<pad>", "<unk>", "<cls>"
SPECIALS: Final = (PAD, UNKNOWN, CLS)  # ids 0, 1, 2, as the config's defaults say
STYLES: Final = ("default", "whitespace")

# A tag cut in pieces by whitespace ("<br", "/><br", "/>") is one only where the piece is the whole given word.
_LINE_BREAK = r"<br\s*/?>|^<br$|^/><br$|^/>$"
_APOSTROPHE = r"[’‘ʼ＇]"
_CLITIC = r"'(?:s|re|ve|ll|d|m)(?!\w)"
# A symbol with its combining marks and, for emoji, what a joiner ties to it.
_SYMBOL = r"[^\w\s]\p{M}*(?:\x{200D}[^\w\s]\p{M}*)*"


def build_tokenizer(
    texts: Iterable[str] | None = None,
    *,
    vocabulary: Sequence[str] | None = None,
    style: str = "default",
    cls: bool = False,
    max_vocabulary: int | None = None,
    min_count: int = 1,
    max_length: int | None = None,
) -> PreTrainedTokenizerFast:
    """A tokenizer whose words are those of `texts`, the most frequent first, or the list `vocabulary` as it stands.

    `max_vocabulary` counts words, not the three specials; `cls` begins every text with <cls>; `max_length` is the
    longest text the model takes, if it has a limit. A pair is encoded one text after the other, without separator
    (Fosse et al. 2023). A word outside the vocabulary is <unk>, never <pad>; a text may give no token at all.
    """
    if (texts is None) == (vocabulary is None):
        raise UserError("a tokenizer is built from texts or from a vocabulary: pass exactly one of the two.")
    if max_vocabulary is not None and max_vocabulary < 1:
        raise UserError(f"max_vocabulary must be at least 1; got {max_vocabulary}.")
    if isinstance(texts, str) or isinstance(vocabulary, str):
        raise UserError("texts and vocabulary must be collections of strings; got one string.")
    pipeline = _pipeline(style)
    if vocabulary is not None:
        pipeline.model = WordLevel(_numbered(vocabulary[:max_vocabulary]), unk_token=UNKNOWN)
    else:
        trainer = WordLevelTrainer(
            vocab_size=2**31 if max_vocabulary is None else max_vocabulary + len(SPECIALS),
            min_frequency=min_count,
            special_tokens=list(SPECIALS),
            show_progress=False,
        )
        pipeline.train_from_iterator(texts or (), trainer)
    if pipeline.get_vocab_size() == len(SPECIALS):
        raise UserError("the texts contain no words to build a vocabulary from.")
    begin = [CLS] if cls else []
    pipeline.post_processor = TemplateProcessing(
        single=[*begin, "$A"], pair=[*begin, "$A", "$B"], special_tokens=[(CLS, SPECIALS.index(CLS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=CLS,
        padding_side="right",
        truncation_side="right",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        # A text that contains "<pad>" is text: it must not become padding.
        split_special_tokens=True,
        **({} if max_length is None else {"model_max_length": max_length}),
    )


def _pipeline(style: str) -> Tokenizer:
    """Normaliser and pre-tokenizer; alignment with the original text is kept throughout."""
    if style not in STYLES:
        raise UserError(f"style must be one of {', '.join(STYLES)}; got {style!r}.{near(style, STYLES)}")
    tokenizer = Tokenizer(WordLevel({special: i for i, special in enumerate(SPECIALS)}, unk_token=UNKNOWN))
    if style == "whitespace":
        # The one way a word of the text could have a special's name.
        apart = [normalizers.Replace(special, f"{special[0]} {special[1:]}") for special in SPECIALS]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *apart])
        words = r"\S+"
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [
                normalizers.NFC(),
                normalizers.Lowercase(),
                normalizers.Replace(Regex(_LINE_BREAK), " "),
                normalizers.Replace(Regex(_APOSTROPHE), "'"),
                normalizers.Replace(Regex(r"\bcan't\b"), "can not"),
                normalizers.Replace(Regex(r"\bwon't\b"), "will not"),
                normalizers.Replace(Regex(r"\bshan't\b"), "shall not"),
                normalizers.Replace(Regex(r"n't\b"), " not"),
            ]
        )
        words = rf"{_CLITIC}|\w+|{_SYMBOL}"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(words), behavior="removed", invert=True)
    return tokenizer


def _numbered(words: Sequence[str]) -> dict[str, int]:
    """Specials first, then the words in their order, each once."""
    ordered = dict.fromkeys((*SPECIALS, *words))
    return {word: number for number, word in enumerate(ordered)}
