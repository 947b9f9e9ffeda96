"""What is counted as a token, against the tokenizer of the embedded encoder, on technical notes."""

import statistics

from tokenizers import Tokenizer

from flows.chunking import chunk, embedding_text
from flows.tokens import count_tokens
from infra.local.data import datasets

ENCODER_TOKENS = 256


def test_nearly_every_passage_is_read_whole_by_the_encoder() -> None:
    tokenizer = Tokenizer.from_file(str(datasets.tokenizer_path()))
    tokenizer.no_truncation()
    articles = [article for article in datasets.articles() if article.tenant == "ibm"]
    texts = [embedding_text(piece) for article in articles for piece in chunk(article.title, article.text)]
    real = [sum(encoding.attention_mask) for encoding in tokenizer.encode_batch(texts)]
    assert sum(tokens > ENCODER_TOKENS for tokens in real) <= 0.04 * len(real)
    assert 0.9 < statistics.median(tokens / count_tokens(text) for tokens, text in zip(real, texts, strict=True)) < 1.1
