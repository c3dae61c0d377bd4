"""Graphs as pictures."""

import re
from xml.etree import ElementTree

from duly.cli.graphs.graph_svg import as_svg

TAGS = {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}


def part(id_, *upstreams, **fields):
    """A task as a part of a graph."""
    depends_on = list(upstreams)
    plain = {"id": id_, "ref": None, "name": None, "status": "waiting", "depends_on": depends_on}
    return {**plain, **fields}


def drawn(parts, title="many"):
    return ElementTree.fromstring("\n".join(as_svg(parts, title)))


def test_a_name_is_text_wherever_it_stands():
    evil = "</text><script>alert(1)</script>\" onload='x' &lt; ]]> \x1b[31m\uffff"
    picture = drawn([part("7", name=evil)], evil)
    assert {one.tag.rpartition("}")[2] for one in picture.iter()} <= TAGS
    assert {name for one in picture.iter() for name in one.attrib}.isdisjoint({"onload", "href"})
    said = [one.text for one in picture.iter() if (one.text or "").startswith("</text><script>")]
    assert len(said) == 3


def test_there_is_a_box_for_each_task_below_what_it_waits_for():
    many = [part(str(one)) for one in range(1, 900)]
    many += [part("1000", *(one["id"] for one in many)), part("1001", "1000", "gone")]
    picture = drawn(many)
    boxes = {}
    for group in picture.findall("{*}g"):
        box = group.find("{*}rect")
        boxes[group.find("{*}text").text] = (float(box.get("x")), float(box.get("y")))
    assert len(set(boxes.values())) == len(many)
    assert boxes["1001"][1] > boxes["1000"][1] > max(boxes[str(one)][1] for one in range(1, 900))
    assert len(picture.findall("{*}path")) == 900
    assert float(picture.get("width")) < 6000


def test_a_status_is_told_by_colour_and_by_word_and_a_condition_by_word():
    on = {"task": "1", "on": "failure"}
    picture = drawn([part("1", status="failed"), part("2", on, status="done"), part("3")])
    words = [one.text for one in picture.iterfind(".//{*}text")]
    assert words == ["failure", "1", "failed", "2", "done", "3", "waiting"]
    fills = {group.find("{*}rect").get("fill") for group in picture.findall("{*}g")}
    assert len(fills) == 3


def test_an_edge_goes_round_what_stands_between():
    """Else it would be taken for one of the edges to and from the task in the middle."""
    always = {"task": "1", "on": "always"}
    picture = drawn([part("1"), part("2", "1"), part("3", "2", always)])
    right = max(
        float(box.get("x")) + float(box.get("width")) for box in picture.iterfind("{*}g/{*}rect")
    )
    (way,) = (path.get("d") for path in picture.findall("{*}path") if path.get("class"))
    begin, *bend, end = [float(x) for x in re.findall(r"([\d.]+) [\d.]+", way)]
    assert (begin, end) == (right, right)
    assert right < min(bend) and max(bend) < float(picture.get("width"))


def test_a_chain_of_a_thousand_and_nothing_at_all_are_drawn():
    chain = [part("0"), *(part(str(one), str(one - 1)) for one in range(1, 1000))]
    assert len(drawn(chain).findall("{*}g")) == 1000
    assert drawn([]).findall("{*}g") == []
