"""What a run leaves: versioned tables, ledgers, receipts, patches; one writer, atomic commits."""
