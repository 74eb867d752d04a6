"""Documents: takes the text out of files, and puts its translation back in.

    document    what every format is: segments to translate, and a way to write their translations
    splice      translations replace parts of the text of a document
    inline      text with formatting becomes a segment with tags, and tags become formatting again
    formats     which format a file has
    translation translates the segments of a document

One module per format. Only translated text changes; all other bytes stay the same.
Nothing here depends on models or interfaces.
"""
