"""What create_index chooses where no design is given: the costs and the choice in SQL are those in Python."""

from servers import TEMPLATE

from simsql.hamming import Design, default_design, design

ROWS = [0, 10**7, 10**9]
DISTANCES = [0, 3, 8, 10, 30]


def test_costs_are_the_same(server):
    with server.connect(TEMPLATE) as connection:
        cursor = connection.execute("SELECT * FROM simsql._costs()")
        costs = dict(zip((column.name for column in cursor.description), cursor.fetchone(), strict=True))
    del costs["joined_candidate"]  # of a join in SQL, for which Python has no plans
    expected = {name.removesuffix("_US").lower(): us for name, us in vars(design).items() if name.endswith("_US")}
    del expected["call"]  # the same for every design
    assert costs == expected


def test_the_design_is_the_same(server):
    with server.connect(TEMPLATE) as connection:
        connection.execute("SET jit = off")  # half a second each on PostgreSQL 15
        chosen = connection.execute(
            "SELECT n, distance, d.blocks, d.lead FROM unnest(%s::bigint[]) AS n"
            " CROSS JOIN unnest(%s::integer[]) AS distance CROSS JOIN LATERAL simsql._design(n, distance) AS d",
            [ROWS, DISTANCES],
        ).fetchall()
    assert len(chosen) == len(ROWS) * len(DISTANCES)
    for rows, distance, blocks, lead in chosen:
        assert Design(blocks, lead) == default_design(rows, distance), (rows, distance)


def test_an_index_gets_the_design_of_its_distance(connection):
    connection.execute("CREATE TABLE article (f bigint); INSERT INTO article SELECT generate_series(1, 10)")
    for distance in (0, 3):
        connection.execute("SELECT simsql.create_index('article', 'f', distance => %s)", [distance])
        blocks, lead = connection.execute("SELECT blocks, lead FROM simsql.registry").fetchone()
        design = default_design(10, distance)
        assert (blocks, lead) == (design.blocks, design.lead)
        connection.execute("SELECT simsql.drop_index('article')")
