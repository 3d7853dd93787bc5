"""The report of a run: one HTML file that shows every cluster and its texts side by side."""

from simsql.report.content import Closeness, ReportedMember, RunReport
from simsql.report.page import SIZE_LIMIT, write_report

__all__ = ["SIZE_LIMIT", "Closeness", "ReportedMember", "RunReport", "write_report"]
