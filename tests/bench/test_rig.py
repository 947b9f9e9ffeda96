"""Brokers, percentiles and tables."""

import os

import pytest

from bench import rig


def test_the_broker_is_the_one_that_was_asked_for_or_the_best_there_is():
    assert rig.choose_broker("tansu") == ("tansu", "Measured on tansu, as asked.")
    kind, about = rig.choose_broker(None)
    assert (kind == "apache-kafka") == (about == "Measured on Apache Kafka.")


def test_percentiles_of_few_values_are_among_them():
    assert rig.percentile([], 50) == 0.0
    assert rig.percentile([3.0], 99) == 3.0
    assert rig.percentile([float(number) for number in range(101)], 95) == pytest.approx(95.0)


def test_a_process_that_lives_has_used_time_and_memory_and_one_that_does_not_has_none():
    assert rig.cpu_s(os.getpid()) > 0
    assert rig.rss_mb(os.getpid()) > 1
    assert rig.cpu_s(2**30) == rig.rss_mb(2**30) == 0


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]):
    rig.print_table("Title", ("", "n", "share"), [("first", 12_345, 0.5), ("second row", 1, "-")])
    assert (
        capsys.readouterr().out
        == "\nTitle\n                   n  share\n  first       12,345   0.50\n  second row       1      -\n"
    )
