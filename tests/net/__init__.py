"""What the program answers, recorded and compared bit by bit: the net under a change of structure.

PYTHONPATH=src:tests python -m net record before        # every lens, on tiny models and MiniLM if it is there
PYTHONPATH=src:tests python -m net compare before       # the same again; says what differs, and by how much
"""
