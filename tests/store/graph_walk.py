"""Walks through the laws of graphs by plain dice: large graphs and long walks from the start.

Hypothesis begins with the smallest of everything and is at its best when it has long; here
every step counts. A walk is told by its seed alone, and says what it did when it fails.
"""

from duly.store.tasks.graph_operations import OperationKind

STEPS = 30
LARGEST = 12
LIMITS = (1, 2, 3, 5, 50)
CONDITIONS = ("success", "success", "success", "failure", "always")
RESULTS = ("done", "failed", "waiting", "waiting")
"""How attempts end: with the task, or with another try."""
ENDS = ("submit", "run_to_the_end")
"""How a walk begins and ends."""
WEIGHTS = {
    "submit": 3,
    "start": 3,
    "end": 2,
    "change": 6,
    "wish": 4,
    "carry_out": 4,
    "tell_some": 5,
    "tell_all": 1,
    "look_for_drift": 3,
    "go_on": 3,
}


def walk(laws, dice):
    """Do what is allowed at random, begin with a graph, and let everything end."""
    laws.begin()
    done = []
    for number in range(STEPS + 2):
        step = _next(laws, dice) if 0 < number <= STEPS else ENDS[number > 0]
        arguments = _draw(step, dice)
        done.append((step, arguments))
        try:
            getattr(laws, step)(**arguments)
            laws.the_tables_say_what_the_model_says()
        except Exception as error:
            error.add_note("\n".join(f"{name} {drawn}" for name, drawn in done))
            raise


def _next(laws, dice):
    possible = {
        **WEIGHTS,
        "end": WEIGHTS["end"] if laws.held else 0,
        "carry_out": WEIGHTS["carry_out"] if laws.wishes else 0,
    }
    return dice.choices(list(possible), weights=list(possible.values()))[0]


def _draw(step, dice):
    picks = [dice.random() < 0.5 for _ in range(2 * LARGEST)]
    limit = dice.choice(LIMITS)
    match step:
        case "submit":
            return {"graph": _graph(dice)}
        case "start" | "look_for_drift":
            return {"picks": picks}
        case "end":
            return {"picks": picks, "ends": dice.choices(RESULTS, k=LARGEST)}
        case "change":
            return {"kind": _kind(dice), "picks": picks}
        case "wish":
            return {"pick": dice.randrange(9), "kind": _kind(dice)}
        case "carry_out":
            return {"pick": dice.randrange(9), "limit": limit}
        case "tell_some" | "tell_all":
            return {"limit": limit}
        case "go_on":
            return {"limit": limit, "dice": dice, "rounds": dice.randint(1, 3)}
    return {"limit": limit, "dice": dice}


def _kind(dice):
    """Mostly not the one after which there is nothing to be seen."""
    return dice.choices(list(OperationKind), weights=[1, 2, 2])[0]


def _graph(dice):
    """Draw tasks by the places of those that they wait for; below 0 are tasks from before."""
    size = dice.randint(3, LARGEST)
    order = dice.sample(range(size), size)
    graph = [{} for _ in range(size)]
    for rank, place in enumerate(order):
        among = [*range(-4, 0), *order[:rank]]
        upstreams = dice.sample(among, dice.choice((0, 1, 1, 2, 3)))
        if rank and dice.random() < 0.3:
            upstreams.append(order[0])  # One that many wait for.
        for one in upstreams:
            graph[place][one] = dice.choice(CONDITIONS)
    return graph
