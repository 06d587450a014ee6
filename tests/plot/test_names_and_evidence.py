"""Diagrams: names of any length, many states, the names of a network, and evidence."""

from __future__ import annotations

import itertools

import matplotlib
import networkx as nx
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from energax import posterior
from energax.energies import BayesianNetwork
from energax.errors import BadInput
from energax.plot import junction_tree, network, transitions

ALARM = nx.DiGraph([("burglary", "alarm"), ("earthquake", "alarm"), ("alarm", "call")])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def net():
    tables = {
        "burglary": [0.9, 0.1],
        "earthquake": [0.8, 0.2],
        "alarm": (("burglary", "earthquake"), [[[0.99, 0.01], [0.7, 0.3]], [[0.1, 0.9], [0.05, 0.95]]]),
        "call": (("alarm",), [[0.95, 0.05], [0.1, 0.9]]),
    }
    return BayesianNetwork(tables, states=dict.fromkeys(tables, ("no", "yes")))


def gids(ax, kind=object) -> dict:
    return {patch.get_gid(): patch for patch in ax.patches if patch.get_gid() and isinstance(patch, kind)}


def boxes(ax) -> dict:
    renderer = ax.figure.canvas.get_renderer()
    return {text: text.get_window_extent(renderer) for text in ax.texts}


def inside(ax, name: str) -> list[str]:
    """The texts whose centre is within a box."""
    box = gids(ax)[name].get_window_extent(ax.figure.canvas.get_renderer())
    middle = lambda extent: ((extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2)
    return [text.get_text() for text, extent in boxes(ax).items() if box.contains(*middle(extent))]


LONG = [
    "a really long name of a state here",
    "convalescent_patients_at_home",
    "Donaudampfschifffahrtsgesellschaft",
]


@pytest.mark.parametrize("long", LONG)
def test_a_long_name_does_not_enlarge_the_other_states(long):
    p = np.full((3, 3), 1 / 3)
    usual = gids(transitions(p, ["sun", "cloud", "rain"]), Circle)
    assert len({circle.radius for circle in usual.values()}) == 1
    ax = transitions(p, ["sun", long, "rain"])
    circles = gids(ax, Circle)
    for name in ("sun", "rain"):
        assert circles[name].radius < 1.5 * usual[name].radius
    text = next(
        t for t in ax.texts if t.get_text().replace("\n", "").replace(" ", "") == long.replace(" ", "")
    )
    extent = text.get_window_extent(ax.figure.canvas.get_renderer())
    circle = circles[long].get_window_extent()
    middle, radius = np.array([circle.x0 + circle.x1, circle.y0 + circle.y1]) / 2, circle.width / 2
    corner = np.maximum(np.abs(extent.max - middle), np.abs(extent.min - middle))
    assert corner[0] < radius  # the lines at the top and the bottom may be shorter
    assert corner[1] < radius


SIX = ["calm", "rising", "falling", "crisis", "recovery", "boom"]


def test_six_states_are_readable():
    rng = np.random.default_rng(0)
    for concentration in (0.3, 1.0, 20.0):
        p = 0.6 * rng.dirichlet(np.full(6, concentration), 6) + 0.4 * np.eye(6)
        ax = transitions(p, SIX)
        extents = list(boxes(ax).values())
        assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
        assert all(ax.figure.bbox.contains(*corner) for box in extents for corner in (box.min, box.max))
        arrows = gids(ax, FancyArrowPatch)
        drawn = np.array([[f"{a} → {b}" in arrows for b in SIX] for a in SIX])
        assert p[drawn].min() > p[~drawn].max(initial=0.0)  # the weakest are left out, and only they
        between = drawn & ~np.eye(6, dtype=bool)
        assert between.sum() <= 24 or p[between].min() >= 0.05
        assert p[~drawn].max(initial=0.0) < 0.05


def test_a_note_tells_which_transitions_are_left_out():
    p = np.array([[0.6, 0.36, 0.04], [0.1, 0.9, 0.0], [0.3, 0.3, 0.4]])
    texts = lambda **options: [text.get_text() for text in transitions(p, **options).texts]
    assert not any("not shown" in text for text in texts())
    assert "p < 0.05 not shown" in texts(least=0.05)
    assert "0.04" not in texts(least=0.05)


def test_strong_transitions_are_drawn_over_weak_ones():
    arrows = gids(transitions([[0.9, 0.1], [0.3, 0.7]], ["a", "b"]), FancyArrowPatch)
    order = sorted(arrows, key=lambda gid: arrows[gid].get_zorder())
    assert order == ["a → b", "b → a", "b → b", "a → a"]
    assert order == sorted(arrows, key=lambda gid: arrows[gid].get_alpha())


def test_the_junction_tree_of_a_network_has_its_names(net):
    tree = net.junction_tree()
    names = net.tables().names
    cliques = {frozenset(names[v] for v in clique) for clique in tree.cliques}
    assert frozenset(("burglary", "earthquake", "alarm")) in cliques
    axes = [junction_tree(net), junction_tree(tree, net), junction_tree(net.to_tables())]
    for ax in (*axes, junction_tree(tree, names)):
        found = {gid: "".join(inside(ax, gid)) for gid in gids(ax) if gid.startswith("clique ")}
        found = {gid: text for gid, text in found.items() if "–" not in gid}
        assert {frozenset(text.replace("\n", " ").split(", ")) for text in found.values()} == cliques
    with pytest.raises(BadInput, match="4 names; expected 3, one for each variable"):
        junction_tree(net.junction_tree("alarm"), net)
    others = [name for name in names if name != "alarm"]
    texts = " ".join(text.get_text() for text in junction_tree(net.junction_tree("alarm"), others).texts)
    assert all(name in texts for name in others) and "alarm" not in texts


@pytest.mark.parametrize("told", [False, True], ids=["by the posterior", "by the user"])
def test_evidence_is_drawn_as_given_and_not_as_a_probability(net, told):
    seen = {"call": "yes", "earthquake": "no"}
    found = posterior(net, seen)
    ax = network(net, found, seen if told else None)
    assert inside(ax, "call") == ["call = yes", "no", "yes"]
    assert inside(ax, "earthquake") == ["earthquake = no", "no", "yes"]
    p = found.marginals["burglary"]["yes"]
    assert inside(ax, "burglary") == ["burglary", "no", f"{100 * (1 - p):.0f}%", "yes", f"{100 * p:.0f}%"]
    bars = gids(ax, Rectangle)
    assert bars["call = no"].get_width() == 0 < bars["call = yes"].get_width()
    assert bars["call = yes"].get_facecolor() != bars["burglary = yes"].get_facecolor()
    frames = {name: gids(ax)[name] for name in net.spaces}
    assert frames["call"].get_linewidth() > frames["alarm"].get_linewidth()
    assert frames["call"].get_facecolor() != frames["alarm"].get_facecolor()
    assert not any("=" in text.get_text() for text in network(net, posterior(net, {})).texts)


def test_evidence_is_not_a_probability_near_one():
    marginals = {name: {"no": 1e-7, "yes": 1 - 1e-7} for name in ALARM}
    ax = network(ALARM, marginals, {"call": "yes"})
    assert inside(ax, "alarm") == ["alarm", "no", "<1%", "yes", ">99%"]
    assert inside(ax, "call") == ["call = yes", "no", "yes"]
    ax = network(ALARM, {"call": np.full(20, 0.05)}, {"call": 17}, most_states=3)
    assert inside(ax, "call")[0] == "call = 17" and "17" in inside(ax, "call")[1:]


def test_arrows_pass_beside_the_other_states():
    ax = transitions(np.full((8, 8), 1 / 8), [*SIX, "slump", "stagnation"])
    circles = gids(ax, Circle)
    t = np.linspace(0, 1, 200)[:, None]
    for gid, arrow in gids(ax, FancyArrowPatch).items():
        ends, controls = gid.split(" → "), arrow._path_original.vertices
        if ends[0] == ends[1]:
            continue
        a, b, c = controls
        curve = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
        for name, circle in circles.items():
            assert name in ends or np.hypot(*(curve - circle.center).T).min() > circle.radius, gid
