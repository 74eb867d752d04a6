"""A tokenizer of made-up words, for models that were never trained: of exactly the size that is asked for."""

from string import ascii_lowercase

from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported

from model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, WORD_START, Tokenizer

# In the order of their ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
WORD_LETTERS = 4


def made_up_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Returns a tokenizer whose words are all of one length, with the special tokens where ours have them."""
    model = ModelProto()
    kinds = model.SentencePiece
    for token_id, piece in enumerate(SPECIAL_PIECES):
        model.pieces.add(piece=piece, type=kinds.UNKNOWN if token_id == UNK_ID else kinds.CONTROL)
    for number in range(vocabulary_size - len(SPECIAL_PIECES)):
        model.pieces.add(piece=f"{WORD_START}{made_up_word(number)}", score=-1.0)
    trainer = model.trainer_spec
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = SPECIAL_PIECES
    return Tokenizer(model.SerializeToString())


def made_up_word(number: int) -> str:
    """Returns the word of a number, with letters for digits."""
    letters = ""
    for _ in range(WORD_LETTERS):
        number, digit = divmod(number, len(ascii_lowercase))
        letters += ascii_lowercase[digit]
    return letters
