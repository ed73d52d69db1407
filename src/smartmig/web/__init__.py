"""The API: shows what the loop sees and does, and passes on what operators ask for; never decides."""
