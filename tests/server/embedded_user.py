"""A program that uses the embedded server of the folder it is given, until its standard input ends."""

import sys
from pathlib import Path

import psycopg

from simsql.server import start_embedded

server = start_embedded(Path(sys.argv[1]))
host = str(server.url().query["host"])
with psycopg.connect(host=host, user="postgres", dbname="simsql") as connection:
    print("connected", flush=True)
sys.stdin.read()
