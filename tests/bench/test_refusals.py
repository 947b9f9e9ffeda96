"""How the cut is chosen below which nothing is found."""

from bench.figures.judged import Question
from bench.figures.refusals import Asked, Found, account
from flows.retrieval import FusionPolicy
from infra.redis.search import Hit

SHIPPED = FusionPolicy(min_similarity=0.40, agreed_allowance=0.10)


def found(at: int, score: float, *, answered: bool = True, agreed: bool = False) -> Found:
    hit = Hit("t", "a", "T", "T", "x", 1, 0, None, score)
    question = Question(str(at), "?", frozenset({"a"} if answered else ()))
    return Found(question, [hit] if agreed else [], [hit])


def halves(score: float, number: int, *, answered: bool = True, agreed: bool = False) -> list[Found]:
    """As many questions of each half."""
    all_of_them = [found(at, score, answered=answered, agreed=agreed) for at in range(number * 8)]
    return [one for tunes in (True, False) for one in [each for each in all_of_them if each.question.tunes == tunes][:number]]


def test_the_cut_is_the_highest_that_costs_no_set_more_than_1_of_200_answers() -> None:
    own = {"large": [*halves(0.6, 199), *halves(0.41, 1)], "small": halves(0.46, 10)}
    figures = account(Asked(own, halves(0.3, 4)), SHIPPED)
    assert figures["refusal_cut_on_tuning_half"] == 0.45
    assert account(Asked(own | {"small": halves(0.44, 10)}, []), SHIPPED)["refusal_cut_on_tuning_half"] == 0.40


def test_what_is_reported_is_the_other_half_alone() -> None:
    own = {"one": [*halves(0.6, 5), *halves(0.35, 3), *halves(0.35, 2, agreed=True), *halves(0.39, 7, answered=False)]}
    strangers = [one for one in halves(0.2, 6) if one.question.tunes]
    figures = account(Asked(own, strangers), SHIPPED)
    assert (figures["one_answerable"], figures["one_wrongly_refused"]) == (10, 3)
    assert (figures["impossible"], figures["impossible_refused"]) == (7, 7)
    assert (figures["strangers"], figures["strangers_refused"]) == (0, 0)
