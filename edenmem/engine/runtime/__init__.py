"""What every piece of engine work needs: the actor, prompts, model calls, threads, usage."""
