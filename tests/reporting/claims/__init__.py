"""No sentence says more than its numbers: random results, and rules that are written without the code of the sentences.

Every sentence must match one of the patterns of its lens, and what it says must follow from the numbers of the result:
who is largest, how many of how many, what is significant (by SciPy), and that what is called different is printed
differently. `numbers.py` draws results and finds what is true of them; `rules.py` holds the rules and runs them.
"""
