"""What is refused before anything is measured, and before weights are opened."""

import pytest

from app.house import scripted_house
from app.test_cycle import QUICKER, ROLES, start
from reforward.app.submit import check_tree, refuse_incumbent
from reforward.domain.errors import BadInput


@pytest.mark.parametrize(("subject", "words"), [("smollm2", "has no forward.py"), ("pkg.mod:make", "is empty")])
def test_a_folder_that_holds_no_candidate_is_refused_by_its_name(tmp_path, subject, words):
    folder = tmp_path / "tree"
    with pytest.raises(BadInput, match="is not a folder"):
        check_tree(subject, folder)
    folder.mkdir()
    if subject == "smollm2":
        (folder / "other.py").write_text("")
    with pytest.raises(BadInput, match=words):
        check_tree(subject, folder)


def test_the_stock_forward_is_not_submitted_against_itself():
    house = scripted_house({})
    with pytest.raises(BadInput, match="is the stock forward"):
        refuse_incumbent(house, house.loaded.stock, house.best())


def test_the_incumbent_is_refused_with_the_verdict_that_made_it():
    house = scripted_house(ROLES)
    cycle, journal, _ = start(house, QUICKER)
    assert cycle.run().id == QUICKER.id
    name = journal.verdicts[-1].id.partition("b2:")[2][:10]
    with pytest.raises(BadInput, match=f"accepted with .* by verdict {name}"):
        refuse_incumbent(house, QUICKER, house.best())
    refuse_incumbent(house, house.loaded.stock, house.best())
