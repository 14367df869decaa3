"""The model that is analysed, its trace over one text, the proof that it is watched exactly, and heads switched off."""

from lorgnette.subject.subject import DTYPES, Subject, load

__all__ = ["DTYPES", "Subject", "load"]
