"""What a run leaves: versioned tables, ledgers, receipts, patches; one writer, atomic commits.

``root`` is the layout, ``files`` the durable primitives, ``rows`` and ``planned`` what a row must
be, ``attempts`` and ``writer`` what is written, ``reading`` and ``integrity`` what is read back.
Facts are only ever added: nothing settled is changed or deleted here.
"""
