"""A labelling task: is there a cone for every part of speech?"""
