"""How similar the words of pretrained encoders are by layer, as Ethayarajh (2019) measures it.

Predicted before any run: these encoders were trained contrastively, so that random words are less similar than in BERT
(mean cosine .17 to .68); still they are more similar in the last layer than in the embeddings.
"""

import xarray as xr

from lorgnette import look
from lorgnette.lens.geometry.lens import Geometry
from lorgnette.texts import corpus
from reproductions.frame.conditions import opened
from reproductions.frame.settings import Machine

_STATES = {
    "random_cosine": "random_cosine",
    "intra_similarity": "state_intra_similarity",
    "self_similarity": "self_similarity",
}


def contextual(*, machine: Machine, model: str, blocks: int, sentences: int) -> xr.Dataset:
    """[block state]: cosines of random words, of words with the mean of their sentence, of occurrences of a word."""
    subject = opened(model, machine.models, machine.device)
    texts = list(corpus("ud_en_ewt", split="train", data=machine.data, limit=blocks * sentences))
    found = []
    for block in range(blocks):
        some = texts[block * sentences : (block + 1) * sentences]
        lens = Geometry(specials=False, covariances=False)
        data = look(subject, some, [lens], progress=False)["geometry"].data.isel(stack=0, drop=True)
        found.append(xr.Dataset({name: data[path] for name, path in _STATES.items()}))
    return xr.concat(found, dim="block")
