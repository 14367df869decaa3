"""The public names, each with the module that it lives in."""

from lorgnette.training.demo import DEMO as DEMO
from lorgnette.training.demo import quick as quick
from lorgnette.training.gates.gates import HeadGates as HeadGates
from lorgnette.training.penalties import EntropyPenalty as EntropyPenalty
from lorgnette.training.penalties import HeuristicPenalty as HeuristicPenalty
from lorgnette.training.penalties import Penalty as Penalty
from lorgnette.training.penalties import RationalePenalty as RationalePenalty
from lorgnette.training.preparation import Prepared as Prepared
from lorgnette.training.preparation import prepare as prepare
from lorgnette.training.pruning.prune import Pruned as Pruned
from lorgnette.training.pruning.prune import prune as prune
from lorgnette.training.pruning.removal import prune_by_gates as prune_by_gates
from lorgnette.training.pruning.removal import remove_heads as remove_heads
from lorgnette.training.pruning.settings import PruningSettings as PruningSettings
from lorgnette.training.run import Trained as Trained
from lorgnette.training.run import train as train
from lorgnette.training.run import train_seeds as train_seeds
from lorgnette.training.settings import Splits as Splits
from lorgnette.training.settings import TrainingSettings as TrainingSettings
