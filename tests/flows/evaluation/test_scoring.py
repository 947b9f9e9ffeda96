import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from flows.evaluation.observation import Observation, calls_of, errors_of
from flows.evaluation.scoring import NAMES, failed, judge
from flows.evaluation.tasks import Call, Change, Task

READ = Call(tool="get_order_details", arguments={"order_id": "#1"})
CANCEL = Call(tool="cancel_pending_order", arguments={"order_id": "#1", "reason": "no longer needed"})
CANCELLED = Change(table="orders", key="#1", after={"status": "cancelled", "refund": 10})
TASK = Task(
    task_id="one",
    messages=("Cancel #1",),
    calls=(READ, CANCEL),
    changes=(CANCELLED,),
    outputs=("1,234.50",),
    route=("asked", "answered"),
)
RIGHT = Observation(calls=(READ, CANCEL), text="You get 1234.50 back.", ending="answered", asked=1, changes=(CANCELLED,))


def low(seen, task=TASK):
    scores = judge(task, seen).scores.as_dict()
    return [name for name in NAMES if scores[name] != 1.0]


def but(**changed):
    fields = {name: getattr(RIGHT, name) for name in ("calls", "text", "ending", "asked", "changes")}
    return Observation(**{**fields, **changed})


def test_what_is_right_has_every_score_and_no_difference():
    judged = judge(TASK, RIGHT)
    assert judged.scores.is_right
    assert judged.differences == ()


@pytest.mark.parametrize(
    ("fault", "caught_by"),
    [
        ({"calls": (Call(tool="think"), CANCEL)}, ["tools"]),
        ({"calls": (Call(tool="get_order_details", arguments={"order_id": "#2"}), CANCEL)}, ["arguments"]),
        ({"ending": "refused"}, ["route"]),
        ({"asked": 0}, ["route"]),
        ({"text": "You get 1234.5 back."}, ["answer"]),
        ({"changes": ()}, ["end_state"]),
        ({"changes": (CANCELLED, Change(table="users", key="u", after={}))}, ["end_state"]),
        ({"changes": (Change(table="orders", key="#1", after={"status": "cancelled", "refund": 10.02}),)}, ["end_state"]),
    ],
)
def test_a_fault_is_caught_by_the_score_that_it_is_a_fault_of_and_by_no_other(fault, caught_by):
    assert low(but(**fault)) == caught_by
    assert judge(TASK, but(**fault)).differences


def test_money_is_compared_to_the_cent():
    assert low(but(changes=(Change(table="orders", key="#1", after={"status": "cancelled", "refund": 10.004}),))) == []


def test_what_the_dataset_does_not_say_is_not_scored():
    scores = judge(Task(task_id="one", messages=("Hello",)), RIGHT).scores
    assert set(scores.as_dict().values()) == {None}
    assert scores.is_right


def test_an_empty_list_of_changes_says_that_nothing_may_change():
    task = TASK.model_copy(update={"changes": ()})
    assert low(but(changes=()), task) == []
    assert low(RIGHT, task) == ["end_state"]


def test_a_back_office_that_cannot_tell_gives_no_end_state():
    assert judge(TASK, but(changes=None)).scores.end_state is None


def test_a_task_that_came_to_no_end_scores_nothing_of_what_was_asked():
    assert set(failed(TASK).as_dict().values()) == {0.0}
    assert failed(Task(task_id="one", messages=("Hello",), calls=())).as_dict() == {
        "answer": None,
        "tools": 0.0,
        "arguments": 0.0,
        "route": None,
        "end_state": None,
    }


def test_a_task_s_own_mode_comes_before_the_run_s():
    turned = but(calls=(CANCEL, READ))
    assert low(turned) == ["tools"]
    assert low(turned, TASK.model_copy(update={"mode": "unordered"})) == []


def test_the_route_names_the_stations_that_were_passed():
    seen = but(calls=(Call(tool="search_articles"), Call(tool="transfer_to_human_agents")), ending="unanswerable")
    assert seen.route == ("searched", "asked", "escalated", "unanswerable")


def test_calls_are_read_from_the_conversation_with_those_that_nobody_could_read():
    messages = [
        HumanMessage("Cancel #1"),
        AIMessage("", tool_calls=[{"name": "a", "args": {"n": 1}, "id": "1"}]),
        ToolMessage("done", tool_call_id="1"),
        AIMessage("", invalid_tool_calls=[{"name": "b", "args": "{", "id": "2", "error": "no JSON", "type": "invalid_tool_call"}]),
        ToolMessage("Error: what?", tool_call_id="2", status="error"),
        AIMessage("Done."),
    ]
    assert [call.tool for call in calls_of(messages)] == ["a", "b"]
    assert errors_of(messages) == 1


def test_a_task_id_may_be_part_of_a_tenant_s_name():
    with pytest.raises(ValueError, match="task_id"):
        Task(task_id="no spaces", messages=("x",))
