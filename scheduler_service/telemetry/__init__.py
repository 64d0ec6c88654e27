"""Which spans does the scheduler make of a sampled request?"""
