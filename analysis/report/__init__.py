"""The report: one self-contained HTML page that a reader can open anywhere and a reviewer check.

``study_of`` analyses what :func:`analysis.load` or :func:`analysis.load_outcomes` opened;
``report_html`` and ``write_report`` make the page of one or several stacks. Same files, same bytes.
"""

from analysis.report.page import report_html, write_report
from analysis.report.source import Study, study_of

__all__ = ["Study", "report_html", "study_of", "write_report"]
