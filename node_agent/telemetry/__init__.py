"""Which spans does an agent make of a sampled item?"""
