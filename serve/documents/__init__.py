"""Documents: takes the text out of files, and puts its translation back in.

    document    what every format is: segments to translate, and a way to write their translations
    splice      translations replace parts of the text of a document
    inline      text with formatting becomes a segment with tags, and tags become formatting again
    xml         documents in XML, by the offsets of their tags
    package     documents in ZIP packages
    tagged      values of JSON, YAML and PO with tags become segments
    stretches   paragraphs of office documents become segments
    formats     which format a file has
    translation translates the segments of a document
    job_store   keeps documents and their translations, for all processes
    jobs        creates, reads and deletes jobs
    job_worker  translates the documents of jobs

One module per format. Only translated text changes; all other bytes stay the same.
Nothing here depends on models or interfaces.
"""
