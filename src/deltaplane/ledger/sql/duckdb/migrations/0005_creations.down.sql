-- What dead transactions left in new places is not found any more; nothing that was committed is lost.

DROP TABLE creations;
