"""Do weight and norm of sinks cancel out, or does that arise from a free constant or when layers are pooled?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="cancellation_by_layer",
    title="Do weight and norm of sinks cancel out, or is it an artefact of pooling?",
    question="Over all layers and heads, tokens that get much weight have short vectors: weight and norm cancel. Is "
    "this an artefact of pooling layers of different scale, or of a constant that no output depends on? And "
    "how far do the states move when a sink's value is replaced?",
    headline=[
        "pooled",
        "pooled-centred",
        "relative",
        "relative-centred",
        "sink-changes-more-centred",
        "less-than-weight-centred",
        "norm-foretells-centred",
    ],
    only="model",
)
