"""What the bench concludes from what it saw."""

from bench.slow_queries import Measured, out_of_order, questions


def test_answers_in_the_order_of_their_thread_are_in_order_whatever_others_do():
    asked = questions("q", threads=2, each=2)
    assert [question.query_id for question in asked] == ["q-0-0", "q-1-0", "q-0-1", "q-1-1"]
    assert out_of_order(asked, ["q-1-0", "q-1-1", "q-0-0", "q-0-1"]) == 0


def test_a_thread_that_was_answered_out_of_order_twice_or_not_at_all_is_counted():
    asked = questions("q", threads=4, each=2)
    completed = ["q-0-1", "q-0-0", "q-1-0", "q-1-0", "q-1-1", "q-2-0", "q-3-0", "q-3-1", "somebody-else"]
    assert out_of_order(asked, completed) == 3


def test_the_ideal_is_what_the_model_alone_needs():
    row = Measured("x", queries=1000, model_s=1.0, seconds=10.0, peak_in_flight=200, cpu_ms_per_query=1.0, cores=0.1, rss_mb=1.0)
    assert row.ideal_s == 5.0
    assert row.share_of_ideal == 0.5
