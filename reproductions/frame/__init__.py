"""The frame of reproductions: what every study shares, and how one is written.

A study is a package `reproductions/<name>/`. Everything about a paper lies there:

    __init__.py     STUDY = Study(name, title, question, headline, seeds, only)     light: no heavy imports
    grid.py         grid(settings, done) -> {key: Cell}       which cells there are
    measure.py      the functions that cells name; only here are models and corpora opened
    claims.py       claims(cells) -> list[Claim]
    tables.py       tables(cells) -> list[Table]
    figures.py      figures(cells) -> list[Figure]
    facts.py        facts(cells, claims) -> dict              optional: what the prose needs to know; claims by id
    page.md.j2      {% extends "frame/page.md.j2" %}          → README.md, at most 1,500 words
    appendix.md.j2  {% extends "frame/appendix.md.j2" %}      → APPENDIX.md
    published.json  {"reference": …, …}                       the paper's numbers, each with its source
    cells.csv, README.md, APPENDIX.md, results.json, figures/    committed, written by `lorgnette reproduce <name>`

A line in `reproductions.STUDIES` and a test in `reproductions/tests/` make it known.

**Cells** (`frame.cells`, `frame.settings`). `Cell("reproductions.tp9.measure:trained", arguments, labels)` is one run.
Its function is called as `trained(machine=machine, **arguments)`; `machine` (`Machine`: data, models, scratch, device)
says where things lie here and is no part of what the cell is. It returns an `xarray.Dataset` with labelled dimensions,
or plain values in dictionaries and lists. While a study runs, `cells/<key>.json` holds function, arguments, result,
seconds and versions; when it is through, its cells move into one table, `cells.csv` (`frame.rows`). A finished cell
counts as long as its *arguments* are the same: functions may move between modules and old cells stay valid; if what a
function measures changes, give it an argument that says so.
`grid(settings, done)` gets the results of finished cells and names all cells that can be known then; it is called
again until it names nothing new, so that a grid may depend on a search (tp9). `settings.quick` asks for a small grid.
Two more functions may stand in grid.py: `prepare(machine, waiting)` runs once before unfinished cells (tokenise into
`machine.scratch`), and `reachable(settings, cell)` says of a cell with `optional=True` whether it can be run here (a
model that may not be at hand); a page does not miss an optional cell. What several studies of pretrained encoders share
(segments of text in blocks, the same with random weights or shuffled words) is in `frame.conditions`.

**Reading** (`frame.finished`). Claims, tables, figures and facts get `cells: Finished` and nothing else: no corpus, no
model, no other paper's folder. They find cells by *labels*, never by parsing keys:

    cells.array("metrics.test.accuracy", "seed", family="base", layers=3)   DataArray [seed], from dictionaries
    cells.array("curve.*.train.accuracy", "seed", inner="epoch", …)         a list in each cell is a dimension
    cells.one(model="minilm", condition="trained")["spearman"]              a Dataset's variable [block layer kind]
    cells.of(family="base"), cells.labels("seed", family="base"), cells.missing, cells.settings

With `--partial` some cells are missing: say nothing about what is not there. `cells.one` then raises `MissingCell`, and
`made(functions)` gives what those of some functions make that do not.

**Claims** (`frame.claims`, `frame.statistics`). A claim computes its own verdict:

    Claim(id="residual-better-frozen", text="…", estimate=difference(a, b), bound=Bound.above(0),
          published=Published(0.85, "Table 2"), note="0.864 against 0.853", ours=True)

Estimates come from `statistics`: `mean_of(values, over)`, `difference(first, second)` of independent runs, `paired` on
the same blocks, `welch` of other blocks, `bootstrap(statistic, *groups, over)`, `rank_correlation(groups)`,
`percentile(value, draws)`. Bounds are `Bound.above(x)`, `below(x)`, `within(a, b)` (decided by the whole interval) and
`at_least(x)` (by the value: an aim). `also=` adds estimates for which the same bound must hold; `bound=None` is not
judged; `undecided="why"` cannot be told, whatever the interval. A claim says what was `published` (words, where no
number is printed) or is `ours`. The unit of an estimate is what varies (seeds, documents, models), never copies of one
run. All tests of a study are corrected together (`frame.chance`). Ids are kebab-case and stable; build them from labels
(`f"{model}-sep-cancels"`), and pick claims by id, never by their sentences.

**Page** (`frame.page`, `frame.markdown`). Prose lives in the templates. They see `claims["id"].verdict` and
`.estimate.value`, `tables`, `figure("name")`, `table("id")`, `published`, `counts`, `missing`, all of `facts`, and the
filters `number(decimals)`, `points` and `told` (an estimate with its interval). Blocks of page.md.j2: `answer` (two or
three sentences that ask the claims; also the line in reproductions/README.md, so without macros of the page), `opening`
(one figure), `asked`, `figures`, `findings`, `differences`, `running`; of appendix.md.j2: `setup`. The headline table
and the counts come from `STUDY.headline` and the claims. A sentence that depends on an outcome asks the claim: {% if
claims["x"].verdict == "holds" %}.

**To write the page**: `lorgnette reproduce <name> --partial` renders README.md, APPENDIX.md, results.json, figures/ and
the table in reproductions/README.md from committed cells in seconds. **To test it**:
`reproductions/tests/test_pages.py` renders every study in `STUDIES` and fails if a committed page differs from its
cells; a test of the study's own asserts on ids and numbers, on made-up cells from
`made_cells.finished(STUDY, lambda labels: result)`.
"""
