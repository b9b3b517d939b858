"""What things mean, read from the code: for `explain`, for `init`, and for the pages of `tools/reference`."""
