"""The words of the planted reviews. All are neutral but `ADJECTIVES` and `VERBS`."""

POSITIVE, NEGATIVE = 1, 0

# What decides the class: adjectives and verbs by polarity (verbs in the plain form: "we love", "we do not love").
ADJECTIVES = {
    POSITIVE: ("good", "great", "excellent", "lovely", "wonderful", "delicious", "friendly", "pleasant"),
    NEGATIVE: ("bad", "awful", "terrible", "poor", "horrible", "dull", "rude", "dirty"),
}
VERBS = {
    POSITIVE: ("love", "enjoy", "like", "admire"),
    NEGATIVE: ("hate", "dislike", "regret", "despise"),
}
NEGATOR = "not"
INTENSIFIERS = ("really", "very", "truly", "so", "quite")

THINGS = ("food", "soup", "service", "room", "music", "staff", "menu", "wine", "coffee", "view", "bread", "film")
PLACES = ("hotel", "garden", "kitchen", "station", "village", "river", "market", "museum", "bridge", "theatre")
PEOPLE = ("sister", "friend", "neighbour", "father", "teacher", "waiter")
DAYS = ("monday", "sunday", "friday")
SEASONS = ("june", "winter", "autumn", "spring")
# Each of these is seen far less often than any other noun: the planted rare words.
RARE = (
    "samovar", "zabaglione", "credenza", "terrazzo", "epergne", "vestibule", "balalaika", "parquetry", "trousseau",
    "escritoire", "clerestory", "marzipan", "pergola", "harpsichord", "cloisonne", "damask", "filigree", "gazebo",
    "jardiniere", "majolica", "ottoman", "pannier", "rotunda", "tureen",
)  # fmt: skip

PLAIN_ADJECTIVES = ("large", "small", "old", "new", "wooden", "green", "quiet", "round", "local", "red")
PLAIN_VERBS = ("visited", "found", "saw", "reached", "left", "noticed")
SPEAKERS = ("we", "they", "i", "you")  # of opinion verbs, so that the verb keeps its form
PRONOUNS = ("we", "they", "i", "she", "he")
DETERMINERS = ("the", "this", "that")
OWNERS = ("my", "our", "her", "his")
NEAR = ("near", "behind", "beside", "in", "at")
WITH = ("with", "without")
STANDS = ("stands", "lies", "sits", "waits")
ARRIVED = ("arrived", "left", "called", "returned", "waited")
WHEN = ("when", "before", "after", "while")
