"""Who decides: key sets and signatures. `signing` holds private keys and is for whoever decides; a worker never imports it."""
