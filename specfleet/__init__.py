"""The shared language of both worlds: scenarios, profiles, stations, sessions, policies, records, metrics."""
