# SPDX-License-Identifier: BSD-2-Clause
"""The rates by size in the documents are those of the RTL as it is."""

import json
from xml.etree import ElementTree

from sim.perf import curve
from sim.perf.figures import rates_by_size
from sim.perf.ideal import USUAL

STALE = "stale: run .venv/bin/python -m sim.perf.curve"


def test_the_numbers_are_what_the_engine_reaches():
    assert curve.RATES.read_text() == curve.text(curve.rates(rates_by_size(USUAL))), STALE


def test_the_picture_is_drawn_from_the_numbers():
    assert curve.PICTURE.read_text() == curve.draw(json.loads(curve.RATES.read_text())), STALE


def test_a_faster_transfer_is_drawn_higher():
    found = json.loads(curve.RATES.read_text())
    found["c2h"]["64"][0] += 100
    picture = ElementTree.fromstring(curve.draw(found))
    starts = [
        float(path.get("d").split("L")[0].split()[1])
        for path in picture.iter("{http://www.w3.org/2000/svg}path")
        if path.get("class") == "rate"
    ]
    assert starts[0] < min(starts[1:])
    assert curve.draw(found) != curve.PICTURE.read_text()
