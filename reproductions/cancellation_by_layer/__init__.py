"""Do weight and norm of sinks cancel out, or does that arise from a free constant or when layers are pooled?"""

from reproductions.frame.study import Study

STUDY = Study(
    name="cancellation_by_layer",
    title="Do weight and norm of sinks cancel out, or is it an artefact of pooling?",
    question="Over all layers and heads together, tokens that get much weight have short vectors: weight and norm "
    "cancel out. Is that so when layers differ in scale and when the constant that is free is removed, or is it an "
    "artefact of pooling? And how much do the states change without the value of a sink?",
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
