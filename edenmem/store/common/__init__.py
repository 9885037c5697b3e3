"""What both stores share: schema steps, the platform's progress, words of a formation."""
