"""Where calls go, as a table: fleets of workers and what becomes of a call there."""

from toolfleet.calls import Effect
from toolfleet.catalog import Announcement, nobody_serves, offered_by
from toolfleet.lanes import Routes, lane_of, lanes_with
from toolfleet.tool import ToolSpec


def spec(name, *, description="", parameter="a", **options):
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return ToolSpec(name=name, description=description, input_schema=schema, **options)


def worker(name, *specs, started=0.0, slots=1, queues=("io",), **facts):
    return Announcement(
        worker=name,
        pid=1,
        pool="pool",
        concurrency=slots,
        queues=queues,
        started_unix_s=started,
        tools=specs,
        lanes={"io": lane_of("io", specs)} if specs else {},
        **facts,
    )


def test_where_all_serve_the_same_calls_go_to_the_queue():
    assert Routes.of([worker("a", spec("t")), worker("b", spec("t"))]).lane(spec("t")) == ""


def test_a_new_text_for_models_changes_no_route_and_no_lane():
    reworded = spec("t", description="new", tags=("x",))
    assert Routes.of([worker("a", spec("t")), worker("b", reworded)]).lane(spec("t")) == ""
    assert lane_of("io", [spec("t")]) == lane_of("io", [reworded])


def test_a_tool_that_not_all_serve_goes_to_a_lane_of_those_that_do():
    routes = Routes.of([worker("a", spec("t"), spec("u")), worker("b", spec("u"))])
    assert routes.lane(spec("t")) == lane_of("io", [spec("t"), spec("u")])
    assert routes.lane(spec("u")) == ""


def test_a_worker_of_the_queue_without_any_tool_of_it_is_passed_by():
    assert Routes.of([worker("a", spec("t")), worker("b")]).lane(spec("t")) == lane_of("io", [spec("t")])


def test_a_call_goes_to_the_version_it_was_offered_with_and_to_any_once_that_is_gone():
    old, new, gone = spec("t", parameter="a"), spec("t", parameter="b"), spec("t", effect=Effect.READ_ONLY)
    routes = Routes.of([worker("a", old), worker("b", new)])
    assert routes.lane(old) == lane_of("io", [old])
    assert routes.lane(new) == lane_of("io", [new])
    assert {routes.lane(gone) for _ in range(100)} == {lane_of("io", [old]), lane_of("io", [new])}


def test_lanes_are_taken_as_often_as_their_readers_have_room():
    workers = [worker("a", spec("t"), slots=3), worker("b", spec("t"), slots=4), worker("c", spec("u"), spec("t"))]
    assert lanes_with(workers, "t") == {lane_of("io", [spec("t")]): 7, lane_of("io", [spec("t"), spec("u")]): 1}


def test_models_are_offered_the_version_of_the_worker_started_last():
    old, new = spec("t", description="old"), spec("t", description="new")
    assert offered_by([worker("a", new, started=2.0), worker("b", old, started=1.0)]) == {"t": new}


def test_a_tool_whose_queue_nobody_consumes_is_named_with_the_command_that_would_serve_it():
    workers = [worker("a", not_served={"paint": "gpu"}, sources={"paint": "my_tools:paint"})]
    assert "`toolfleet worker --pool gpu --import my_tools`" in nobody_serves("paint", workers)
    assert nobody_serves("other", workers) == ""
