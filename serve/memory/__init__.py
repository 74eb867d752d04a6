"""Translation memories: pairs of texts that people have translated, and corrections that may become such pairs.

normalize   what makes two texts equal, and the translation of an equal text: `pattern`
store       memories of keys and shared ones: `store`; corrections that wait for approval: `corrections`; an index of
            similar texts: `similar`
files       pairs as TMX and XLIFF: `tmx`, `xliff`
"""
