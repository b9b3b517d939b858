"""Bad input as a family: files of every kind that we read, damaged in every way that we could think of."""
