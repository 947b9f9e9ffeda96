from collections import Counter

from infra.local.data import datasets


def test_the_tickets_show_every_intent():
    tickets = datasets.tickets()
    assert len(tickets) == len({ticket.ticket_id for ticket in tickets}) == 400
    assert {ticket.intent for ticket in tickets} == set(datasets.intents())


def test_every_judged_article_is_there_and_belongs_to_the_asker():
    tenant_of = {article.article_id: article.tenant for article in datasets.articles()}
    questions = datasets.questions()
    assert Counter(tenant_of.values()) == {"wix": 173, "ibm": 160}
    assert all(tenant_of[article] == question.tenant for question in questions for article in question.article_ids)
    assert sum(not question.article_ids for question in questions) == 40
    assert all((question.answer is None) == (not question.article_ids) for question in questions)


def test_every_retail_task_names_records_of_the_seed():
    seed = datasets.retail_seed()
    assert {table: len(records) for table, records in seed.items()} == {"orders": 1000, "products": 50, "users": 500}
    for task in datasets.retail_tasks():
        assert task.user_id in seed["users"]
        assert all(change.key in seed[change.table] for change in task.expected_changes)


def test_observations_match_the_actions_one_to_one():
    observations = datasets.retail_observations()
    tasks = datasets.retail_tasks("test")
    assert [len(task.actions) for task in tasks] == [len(observations[task.task_id]) for task in tasks]


def test_a_change_to_the_seed_stays_with_its_owner():
    datasets.retail_seed()["orders"].clear()
    assert len(datasets.retail_seed()["orders"]) == 1000
