"""What `dragoman inspect` shows of a bundle: its manifest, graphs, sizes, memory and a picture of the decoder step."""
