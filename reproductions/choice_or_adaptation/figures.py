"""BLEU by length of adaptation, less that of the whole model."""

from statistics import mean

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.choice_or_adaptation.readings import Readings
from reproductions.choice_or_adaptation.tables import SETS, said
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure


def figures(cells: Finished) -> list[Figure]:
    r, rows = Readings(cells), []
    for kind, choice in SETS[:-1]:
        for steps in r.adapting:
            gap = r.gap((kind, choice), SETS[-1], steps)
            if gap:
                rows.append({"model": f"{kind}: {said(choice)}", "steps": steps, "bleu": mean(gap.values())})
    if not rows:
        return []
    names = list(dict.fromkeys(row["model"] for row in rows))
    chart = alt.Chart(alt.Data(values=rows), width=420, height=240).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("steps:Q", title="steps after the cut", scale=alt.Scale(type="log")),
        y=alt.Y("bleu:Q", title="BLEU less that of all heads"),
        color=alt.Color("model:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None),
    )
    caption = "BLEU with a third of the heads, less that of the whole model trained as long; means over seeds."
    return [Figure("bleu", chart, caption)]
