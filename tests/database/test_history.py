"""Every way to the newest revision of simsql's own schema ends at the same contents, on every server."""

from upgrades import difference, fresh_contents, upgraded_contents

from simsql.database.history import own_history


def test_every_upgrade_leads_to_what_is_installed_afresh(server):
    history = own_history()
    expected = fresh_contents(server, history)
    for start in (None, *history.revisions):
        assert difference(upgraded_contents(server, history, start, expected), expected) == set()
