"""The model that is analysed, its trace over one text, the proof that it is watched exactly, and heads switched off."""

from lorgnette.subject.loading import load
from lorgnette.subject.subject import DTYPES, Subject, refuse_no_subject, refuse_tokenizer, subject_of

__all__ = ["DTYPES", "Subject", "load", "refuse_no_subject", "refuse_tokenizer", "subject_of"]
