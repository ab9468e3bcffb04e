"""A pure planner and the Ray actors that carry it out; here the ports get their implementations."""
