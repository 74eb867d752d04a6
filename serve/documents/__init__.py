"""Documents: takes the text out of files, and puts its translation back in.

    document    what every format is: segments to translate, and a way to write their translations
    splice      documents whose translations replace parts of their text
    inline      text with formatting becomes a segment with tags, and tags become formatting again
    formats     which format a file has
    translation translates the segments of a document

One module per format. What is not translated keeps its bytes. Nothing here depends on models or interfaces.
"""
