"""What a translation must keep of its text: markup, placeholders, terms and alignments."""
