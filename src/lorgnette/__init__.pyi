"""The public names, each with the module that it lives in. `__init__.py` reads this table when a name is first used."""

from lorgnette import lens as lens
from lorgnette.attending import Call as Call
from lorgnette.attending import Site as Site
from lorgnette.attending import Tap as Tap
from lorgnette.attending import attend as attend
from lorgnette.bare.attention import Attention as Attention
from lorgnette.bare.attention import attention as attention
from lorgnette.bare.batch import batch as batch
from lorgnette.bare.callback import LensCallback as LensCallback
from lorgnette.bare.effects import Effect as Effect
from lorgnette.bare.effects import effect as effect
from lorgnette.bare.effects import gradient_effects as gradient_effects
from lorgnette.bare.interventions import patched as patched
from lorgnette.bare.interventions import scaled as scaled
from lorgnette.bare.interventions import without as without
from lorgnette.bare.watching import watch as watch
from lorgnette.errors import CaptureError as CaptureError
from lorgnette.errors import UserError as UserError
from lorgnette.explaining import Explanation as Explanation
from lorgnette.explaining import explain as explain
from lorgnette.explaining import explanations as explanations
from lorgnette.figures.plot import Plot as Plot
from lorgnette.lens import lenses as lenses
from lorgnette.looking.look import look as look
from lorgnette.looking.merging import merge as merge
from lorgnette.looking.shards import Shard as Shard
from lorgnette.models.families.verified import families as families
from lorgnette.models.tapping import tapped as tapped
from lorgnette.reporting import Comparison as Comparison
from lorgnette.reporting import Report as Report
from lorgnette.reporting.functions import compare as compare
from lorgnette.reporting.functions import report as report
from lorgnette.reporting.views.bare import Views as Views
from lorgnette.reporting.views.bare import views as views
from lorgnette.results import Result as Result
from lorgnette.results import Results as Results
from lorgnette.subject import Subject as Subject
from lorgnette.subject import load as load
from lorgnette.subject.generation import Generation as Generation
from lorgnette.subject.trace import Trace as Trace
from lorgnette.texts import Corpus as Corpus
from lorgnette.texts import corpora as corpora
from lorgnette.texts import corpus as corpus
from lorgnette.texts.batch import Batch as Batch
from lorgnette.texts.example import Example as Example
from lorgnette.texts.parts import chat as chat
from lorgnette.texts.parts import prompt as prompt
from lorgnette.training.functions import Runs as Runs
from lorgnette.training.functions import prune as prune
from lorgnette.training.functions import train as train
from lorgnette.training.pruning.prune import Pruned as Pruned
from lorgnette.training.run import Trained as Trained

__version__: str
__all__: list[str]
