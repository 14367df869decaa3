// A report without example texts: figures that can be saved, cards that can be sorted.

import { startAtlases } from "./atlas.js";
import { startFigures } from "./figures.js";

startFigures();
startAtlases();
